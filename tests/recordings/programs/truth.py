"""Writes the truth beside a recording. A program calls T.begin() first, T.mid() after its warm-up, T.at() at instants, T.finish() last.
G: count of allocator events since the process began, from memory_stats (alloc + free_requested + free_completed + segment_alloc + segment_free)."""
import gc, json, lzma, os, pickle, sys, time, weakref
import torch

class Saved:
    __slots__ = ('t', '__weakref__')
    def __init__(self, t): self.t = t

VIEW = {'TBackward0', 'TransposeBackward0', 'ViewBackward0', 'PermuteBackward0', 'UnsafeViewBackward0', 'ExpandBackward0', 'UnsqueezeBackward0', 'ReshapeAliasBackward0'}

def tensors(o, depth=0):
    if o is None or depth > 8: return
    if isinstance(o, torch.Tensor): yield o; return
    if isinstance(o, dict):
        for v in o.values(): yield from tensors(v, depth + 1)
    elif isinstance(o, (list, tuple, set)):
        for v in o: yield from tensors(v, depth + 1)
    elif hasattr(o, 'self_attention_cache'): yield from tensors([o.self_attention_cache, o.cross_attention_cache], depth + 1)
    elif hasattr(o, 'layers') and type(o).__name__.endswith('Cache'):
        for l in o.layers: yield from tensors([getattr(l, 'keys', None), getattr(l, 'values', None)], depth + 1)

def storage(t):
    """(address, bytes, is_cuda) of the storage behind a tensor."""
    t = getattr(t, '_local_tensor', t)
    try: s = t.untyped_storage(); return s.data_ptr(), s.nbytes(), (t.device.type == T.devtype)
    except Exception: return 0, 0, False

def places(ts):
    out, seen = [], set()
    for t in ts:
        a, n, c = storage(t)
        if c and a and n and a not in seen: seen.add(a); out.append([a, n])
    return out

class Truth:
    def __init__(self):
        self.devtype = 'cuda' if os.environ.get('DRY') != '1' else 'cpu'
        self.job = {}; self.models = []; self.opts = []; self.labels = []; self.instants = []; self.phases = []; self.steps = []; self.micro = []
        self.G0 = None; self.recording = False; self.saved = weakref.WeakSet(); self.params = {}; self.notes = {}; self.ctx = None; self.begun = False; self.done = False
        self.packed = {}
    # -- counting
    def counts(self):
        if self.devtype == 'cpu' or not self.begun: return (0,) * 5
        s = torch._C._cuda_memoryStats(0); a = s['allocation']['all']; g = s['segment']['all']
        return (a['allocated'], a['freed'], s['active']['all']['freed'], g['allocated'], g['freed'])
    def G(self): return sum(self.counts())
    # -- life of the recording
    def begin(self):
        if self.begun: return
        self.begun = True
        if self.devtype == 'cuda': torch.cuda.init()
        if self.job.get('hook'):
            self.ctx = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack); self.ctx.__enter__()
        if self.job.get('history') in ('start', 'ring'): self.start_recording()
    def mid(self):
        if self.job.get('history') == 'mid' and not self.recording: self.start_recording()
    def start_recording(self):
        self.recording = True
        if self.devtype == 'cpu': self.G0 = 0; return
        torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
        kw = {}
        if self.job.get('max_entries'): kw['max_entries'] = self.job['max_entries']
        s = self.job['stacks']
        if s == 'none': torch.cuda.memory._record_memory_history(context=None, **kw)
        else: torch.cuda.memory._record_memory_history(stacks=s, **kw)
        self.C0 = self.counts(); self.G0 = sum(self.C0)
    # -- hooks
    def pack(self, x):
        s = Saved(x.detach()); self.saved.add(s)
        try:
            a, n, c = storage(x)
            if c and a and n:
                role = 'activations'; base = x if x._base is None else x._base
                if isinstance(base, torch.nn.Parameter): role = 'parameter_saved'
                else:
                    fn = x.grad_fn
                    for _ in range(4):
                        if fn is None: break
                        nm = fn.name()
                        if nm == 'ToCopyBackward0':
                            nf = fn.next_functions[0][0]
                            if nf is not None and nf.name() == 'torch::autograd::AccumulateGrad': role = 'autocast_copies'
                            break
                        if nm not in VIEW: break
                        fn = fn.next_functions[0][0] if fn.next_functions else None
                if self.packed.get(a) != (role, n): pass
                self.labels.append((self.G(), role, a, n))
        except Exception as e: self.notes['pack_error'] = repr(e)
        return s
    def unpack(self, s): return s.t
    # -- what programs say
    def model(self, *ms):
        for m in ms: self.models.append(weakref.ref(m))
    def opt(self, *os_):
        for o in os_: self.opts.append(weakref.ref(o))
    def step(self, i): self.steps.append(self.G())
    def microstep(self, i): self.micro.append(self.G())
    def phase(self, name, step=None):
        g = self.G()
        if self.phases and self.phases[-1][3] is None: self.phases[-1][3] = g
        if name: self.phases.append([name, step, g, None])
    def label(self, role, obj):
        g = self.G()
        for a, n in places(tensors(obj)): self.labels.append((g, role, a, n))
    def at(self, what, step=None, **roles):
        """An instant. inputs=, outputs=, kv_cache=, optimizer_state= (extra) and so on may be given."""
        if not self.begun or self.done: return
        g = self.G(); R = {}; ps = []; gs = []; st = []
        for r in self.models:
            m = r()
            if m is None: continue
            for n, p in list(m.named_parameters()) + list(m.named_buffers()):
                ps.append(p); a, b, c = storage(p)
                if c and a and b: self.params[n] = [a, b, list(p.shape), str(p.dtype)]
                if p.grad is not None: gs.append(p.grad)
        for r in self.opts:
            o = r()
            if o is None: continue
            s = o.state; own = set(id(p) for grp in getattr(o, 'param_groups', []) for p in grp['params'])
            st += [t for t in tensors(dict(s) if not isinstance(s, (list, tuple, dict)) else s) if id(t) not in own]
        R['weights'] = places(ps); R['gradients'] = places(gs); R['optimizer_state'] = places(st)
        for k, v in roles.items(): R[k] = R.get(k, []) + [x for x in places(tensors(v)) if x not in R.get(k, [])]
        if self.job.get('hook'):
            w = {x[0] for x in R['weights']}
            extra = []
            for o in gc.get_objects():
                if type(o).__name__ == '_CheckpointFrame' and type(o).__module__.startswith('torch'):
                    for d in o.recomputed.values(): extra += list(tensors(list(d.values())))
            R['saved_for_backward'] = [x for x in places([s.t for s in list(self.saved)] + extra) if x[0] not in w]
            if extra:
                for a, n in places(extra): self.labels.append((g, 'activations', a, n))
            tt = torch.Tensor
            for o in gc.get_objects():
                if issubclass(type(o), tt):
                    try: a, n, c = storage(o)
                    except Exception: continue
                    if c and a and n: self.labels.append((g, 'python_held', a, n))
        for k, v in R.items():
            if k == 'saved_for_backward': continue
            for a, n in v: self.labels.append((g, k, a, n))
        self.instants.append({'label': what, 'step': step, 'G': g, 'roles': R})
    # -- end
    def finish(self):
        if self.done: return
        self.phase(None); self.at('end'); self.done = True
        J = self.job; name = J['file']
        if self.devtype == 'cpu':
            json.dump({'instants': len(self.instants), 'steps': self.steps, 'labels': len(self.labels), 'phases': self.phases, 'roles': [(i['label'], i['step'], {k: len(v) for k, v in i['roles'].items()}) for i in self.instants]}, open(J['out'] + '/' + name + '.dry.json', 'w')); return
        torch.cuda.synchronize()
        Gend = self.G(); C = self.counts(); ms = torch.cuda.memory_stats()
        peaks = {k: ms[k] for k in ms if k.endswith('all.peak') or k.endswith('all.current') or k in ('num_ooms', 'num_alloc_retries')}
        t0 = time.time(); snap = torch.cuda.memory._snapshot(); dt = time.time() - t0
        extra = {}
        if J.get('hook'):
            torch._C._cuda_clearCublasWorkspaces(); torch.cuda.synchronize()
            s2 = torch.cuda.memory._snapshot(); n = len(snap['device_traces'][0])
            extra['workspaces'] = [e['addr'] for e in s2['device_traces'][0][n:] if e['action'] == 'free_requested']
        base = J['out'] + '/' + name
        if not J.get('hook'):
            clean(snap)
            with open(base + '.pickle', 'wb') as f: pickle.dump(snap, f)
            extra['pickle_bytes'] = os.path.getsize(base + '.pickle')
            c = lzma.LZMACompressor(preset=4)
            with open(base + '.pickle', 'rb') as f, open(base + '.pickle.xz', 'wb') as g:
                while True:
                    b = f.read(1 << 22)
                    if not b: break
                    g.write(c.compress(b))
                g.write(c.flush())
        slim = [(e['action'], e['addr'], e['size']) for e in snap['device_traces'][0]]
        live = [(b['address'], b['size'], b['requested_size'], b['state']) for s in snap['segments'] for b in s['blocks']]
        raw = {'job': J, 'G0': self.G0, 'C0': self.C0, 'Gend': Gend, 'C': C, 'trace': slim, 'live': live, 'labels': self.labels, 'instants': self.instants, 'phases': self.phases, 'steps': self.steps, 'micro': self.micro,
               'params': self.params, 'notes': self.notes, 'memory_stats': peaks, 'snapshot_s': dt, 'device': torch.cuda.get_device_name(0), 'torch': torch.__version__, **extra}
        if J.get('want_frames'):
            memo = {}
            raw['frames'] = [top(e.get('frames') or [], memo) for e in snap['device_traces'][0]]
        open(base + '.raw.xz', 'wb').write(lzma.compress(pickle.dumps(raw, 4), preset=2))

def top(frames, memo):
    """Innermost frame of the program's own file, and its line."""
    for f in frames:
        if '/home/user/train/' in f['filename']: return (f['filename'], f['line'], f['name'])
    return None

def clean(snap):
    """Neutral paths; drops the harness's own frames (outermost)."""
    seen = {}; lists = set()
    venv = sys.prefix
    def fix(frames):
        if id(frames) in lists or not frames: return
        lists.add(id(frames)); keep.append(frames)
        cut = [i for i, f in enumerate(frames) if f['filename'].endswith('/drive.py')]
        if cut: del frames[cut[0]:cut[-1] + 1]
        for f in frames:
            if id(f) in seen: continue
            seen[id(f)] = f
            if f['filename'].startswith(venv): f['filename'] = '/home/user/venv' + f['filename'][len(venv):]
    keep = []
    for tr in snap['device_traces']:
        for e in tr: fix(e.get('frames'))
    for s in snap['segments']:
        fix(s.get('frames'))
        for b in s['blocks']: fix(b.get('frames'))

T = Truth()
