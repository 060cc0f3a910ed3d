import json, os, pickle, bisect, re, lzma
PRIO = ['workspace', 'weights', 'ema_weights', 'gradients', 'optimizer_state', 'kv_cache', 'inputs', 'gathered_weights', 'autocast_copies', 'activations', 'outputs', 'python_held']
CORE = ('weights', 'gradients', 'optimizer_state')

def load(out, J):
    return pickle.loads(lzma.decompress(open(f"{out}/{J['file']}.raw.xz", 'rb').read()))

def blocks_of(trace, initial):
    """[alloc_event or -1, free_event or None, addr, nbytes] for every block; events are indices into trace."""
    live = {}; out = []
    for a, n in initial.items(): b = [-1, None, a, n]; live[a] = b; out.append(b)
    for i, (act, addr, size) in enumerate(trace):
        if act == 'alloc': b = [i, None, addr, size]; live[addr] = b; out.append(b)
        elif act == 'free_completed' and addr in live: live.pop(addr)[1] = i
    return out

def initial_of(trace, final):
    """What was live before the first event: final state, walked backwards."""
    live = {a: r for a, s, r, st in final if st != 'inactive'}
    for act, addr, size in reversed(trace):
        if act == 'free_completed': live[addr] = size
        elif act == 'alloc': live.pop(addr, None)
    return live

def index(blocks):
    d = {}
    for b in blocks: d.setdefault(b[2], []).append(b)
    return d

def find(idx, addr, g):
    """Block at addr that is live after the first g events."""
    for b in reversed(idx.get(addr, ())):
        if b[0] < g: return b if b[1] is None or b[1] >= g else None
    return None

def merge(out, J, jobs):
    raw = load(out, J)
    hj = [j for j in jobs if j.get('hook') and j['prog'] == J['prog'] and j.get('leak') == J.get('leak')]
    hook = load(out, hj[0]) if hj and os.path.exists(f"{out}/{hj[0]['file']}.raw.xz") else None
    tr = [e for e in raw['trace'] if e[0] != 'snapshot']; G0 = raw['G0']; tail_snap = len(raw['trace']) - len(tr)
    total = raw['Gend'] - G0; dropped = total - len(tr); checks = {}
    cnt = {}
    for e in tr: cnt[e[0]] = cnt.get(e[0], 0) + 1
    want = dict(zip(('alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free'), [b - a for a, b in zip(raw['C0'], raw['C'])]))
    checks['event_counts'] = 'exact' if all(cnt.get(k, 0) == v for k, v in want.items()) and sum(cnt.values()) == total else f'trace {cnt} stats {want} dropped {dropped}'
    drop = max(dropped, 0); base = G0 + drop; E = lambda g: g - base
    initial = initial_of(tr, raw['live']); B = blocks_of(tr, initial); idx = index(B); role = {}; lost = 0; lost_roles = {}; hook_of = None
    def locate(idx, starts, a, n, g):
        b = find(idx, a, g)
        if b is None:
            k = bisect.bisect_right(starts, a) - 1
            for q in range(k, max(-1, k - 4), -1):
                c = find(idx, starts[q], g)
                if c and c[2] + c[3] >= a + n: return c
        return b
    starts = sorted(idx)
    def note(b, r): role.setdefault(id(b), set()).add('gathered_weights' if r == 'parameter_saved' else r)
    for g, r, a, n in raw['labels']:
        b = locate(idx, starts, a, n, g - base)
        if b is None and g < base and a in initial and not hook and r in ('weights', 'optimizer_state'): b = idx[a][0]   # told before the recording began and still there
        if b is None:
            if g >= base: lost += 1; lost_roles[r] = lost_roles.get(r, 0) + 1
            continue
        note(b, r)
    to_rec = {}   # id(hook block) -> block of the recording
    if hook:
        htr = [e for e in hook['trace'] if e[0] != 'snapshot']; Gh = hook['G0']; HB = blocks_of(htr, initial_of(htr, hook['live'])); hidx = index(HB); hstarts = sorted(hidx); d = base - Gh
        ha = [b for b in HB if b[0] >= 0]; ra = [b for b in B if b[0] >= 0]; ha.sort(key=lambda b: b[0]); ra.sort(key=lambda b: b[0])
        off = len(ha) - len(ra)   # both end at the same place
        same = [x[3] == y[3] and x[0] - d == y[0] for x, y in zip(ha[off:], ra)]
        checks['same_allocations_as_hook_run'] = sum(same) / max(1, len(ra)) if off >= 0 else f'hook has {len(ha)}, recording {len(ra)}'
        h = htr[d:d + len(tr)]
        checks['same_events_as_hook_run'] = sum(p[0] == q[0] and p[2] == q[2] for p, q in zip(tr, h)) / max(1, len(tr)) if len(h) == len(tr) else f'recording {len(tr)}, hook has {len(h)}'
        checks['same_addresses_as_hook_run'] = sum(p[1] == q[1] for p, q in zip(tr, h)) / max(1, len(tr))
        sizes_ok = off >= 0 and all(x[3] == y[3] for x, y in zip(ha[off:], ra)) and len(h) == len(tr)
        if not sizes_ok:
            k = next((i for i, (x, y) in enumerate(zip(tr, h)) if (x[0], x[2]) != (y[0], y[2])), min(len(h), len(tr))); checks['first_difference'] = [k, str(tr[k:k + 2]), str(h[k:k + 2])]
            checks['truth_from'] = 'recording run itself (no activations)'
        else:
            checks['truth_from'] = 'hook run of the same program and seed, block by block; weights, gradients, optimizer state from the recording run itself'
            for x, y in zip(ha[off:], ra): to_rec[id(x)] = y
            old = [b for b in HB if b[0] < d and (b[1] is None or b[1] >= d)]; mine = {b[2]: b for b in B if b[0] < 0}; left = []
            pair = {}
            skip = ('activations', 'parameter_saved', 'autocast_copies', 'python_held')
            l1 = [x for x in raw['labels'] if x[1] not in skip]; l2 = [x for x in hook['labels'] if x[1] not in skip]
            if len(l1) == len(l2):
                for x, y in zip(l1, l2):
                    if x[0] == y[0] and x[1] == y[1]: pair[y[2]] = x[2]
            exact = all(b[2] in mine and mine[b[2]][3] == b[3] for b in old)
            segs = sorted((a, n) for act, a, n in htr if act == 'segment_alloc'); sa = [x[0] for x in segs]
            seg = lambda a: sa[bisect.bisect_right(sa, a) - 1] if sa and a >= sa[0] else None
            delta = {}
            for x, y in zip(ha[off:], ra): delta.setdefault(seg(x[2]), {}).setdefault(y[2] - x[2], 0); delta[seg(x[2])][y[2] - x[2]] += 1
            for hb in old:
                if hb[2] in pair: delta.setdefault(seg(hb[2]), {}).setdefault(pair[hb[2]] - hb[2], 0); delta[seg(hb[2])][pair[hb[2]] - hb[2]] += 1
            un = 0
            for hb in old:
                if exact: to_rec[id(hb)] = mine[hb[2]]; continue
                cand = [pair.get(hb[2])] + [hb[2] + k for k, _ in sorted(delta.get(seg(hb[2]), {}).items(), key=lambda z: -z[1])]
                c = next((mine[a] for a in cand if a in mine and mine[a][3] == hb[3]), None)
                if c is None: un += 1; left.append(hb)
                else: to_rec[id(hb)] = c
            hrole = {}; ws = set(hook.get('workspaces') or [])
            for b in HB:
                if b[2] in ws and b[1] is None: hrole.setdefault(id(b), set()).add('workspace')
            for g, r, a, n in hook['labels']:
                b = locate(hidx, hstarts, a, n, g - Gh)
                if b is None:
                    if g >= base: lost += 1; lost_roles['hook ' + r] = lost_roles.get('hook ' + r, 0) + 1
                else: hrole.setdefault(id(b), set()).add(r)
            taken = {id(v) for v in to_rec.values()}; free = [b for b in mine.values() if id(b) not in taken]
            for size in {b[3] for b in left}:   # no address to go by: equal size, equal count and equal roles leave no doubt
                x = sorted((b for b in left if b[3] == size), key=lambda b: b[2]); y = sorted((b for b in free if b[3] == size), key=lambda b: b[2])
                if len(x) == len(y) and len({tuple(sorted(hrole.get(id(b), ()))) for b in x}) == 1:
                    for p, q in zip(x, y): to_rec[id(p)] = q; un -= 1
            checks['older_blocks_matched'] = [len(old) - un, len(old)]
            for b in HB:
                if id(b) in to_rec:
                    for r in hrole.get(id(b), ()): note(to_rec[id(b)], r)
    checks['labels_without_a_block'] = [lost, len(raw['labels']) + (len(hook['labels']) if hook else 0), lost_roles]
    def primary(b):
        rs = role.get(id(b))
        if not rs: return 'other'
        if 'weights' in rs and ('gathered_weights' in rs or 'fsdp' in J['prog']) and b[0] >= loaded_at: return 'gathered_weights'   # FSDP's unsharded copies
        for p in PRIO:
            if p in rs: return p
        return sorted(rs)[0]
    loaded_at = next((max(0, i['G'] - base) for i in raw['instants'] if i['label'] == 'loaded'), 1 << 60)
    prim = {id(b): primary(b) for b in B}; d0 = 0
    if J['prog'] == 'ddp':   # the reducer's buckets: C++ only, nothing in Python holds them
        for b in B:
            if prim[id(b)] == 'other' and (b[1] is None or b[1] - b[0] > 800) and b[3] > 1 << 16: role[id(b)] = {'communication_buckets'}; prim[id(b)] = 'communication_buckets'
    if 'lightning' in J['prog']:   # Lightning's teardown clears cuBLAS's workspaces before the end, so their clearing could not be watched
        for b in B:
            if prim[id(b)] == 'other' and b[3] in (33554432, 1048576) and (len(tr) if b[1] is None else b[1]) - b[0] > len(tr) // 3: role[id(b)] = {'workspace'}; prim[id(b)] = 'workspace'
    inst = []; ok = bad = 0; hi = {(i['label'], i['step'], k): i for k, i in enumerate(hook['instants'])} if hook and to_rec else {}; agree = 0
    for k, I in enumerate(raw['instants']):
        if I['G'] < base: continue
        g = I['G'] - base; R = {}; used = set(); H = hi.get((I['label'], I['step'], k)); agree += H is not None
        def put(r, a, n):
            if a in used: return
            used.add(a); R.setdefault(r, []).append([a, n])
        liveb = [b for b in B if b[0] < g and (b[1] is None or b[1] >= g)]; lm = {b[2]: b[3] for b in liveb}
        late = ('outputs', 'python_held')
        for r in [x for x in PRIO if x in I['roles'] and x not in late] + [x for x in I['roles'] if x not in PRIO]:
            for a, n in I['roles'][r]:
                if r == 'weights':
                    b = locate(idx, starts, a, n, g)
                    if b is not None and prim[id(b)] == 'gathered_weights': put('gathered_weights', a, n); continue
                put(r, a, n)
        if H:
            for a, n in H['roles'].get('saved_for_backward', []):
                hb = locate(hidx, hstarts, a, n, H['G'] - Gh)
                if hb is None or id(hb) not in to_rec: bad += 1; continue
                b = to_rec[id(hb)]; p = prim[id(b)]
                put(p if p in ('inputs', 'autocast_copies', 'gathered_weights', 'kv_cache') else 'activations', b[2] + a - hb[2], n)
        for a, n in I['roles'].get('outputs', []): put('outputs', a, n)
        for b in liveb:
            p = prim[id(b)]
            if p in ('gradients', 'optimizer_state', 'activations'): p = 'outputs' if 'outputs' in role[id(b)] else 'python_held' if 'python_held' in role[id(b)] else 'other'
            put(p, b[2], b[3])
        for r, l in R.items():
            for a, n in l:
                if lm.get(a, 0) >= n: ok += 1
                else:
                    c = locate(idx, starts, a, n, g)
                    if c: ok += 1
                    else: bad += 1
        inst.append({'label': I['label'], 'step': I['step'], 'event': g, 'live_bytes': sum(lm.values()), 'roles': R})
    checks['instants_in_both_runs'] = f'{agree} of {len(inst)}'; checks['truth_addresses_live'] = [ok, ok + bad]
    src = raw; m = lambda a: a; d = 0
    # peak, in the recording
    run = sum(initial_of(tr, raw['live']).values()) if not dropped else None; peak = None
    if run is not None:
        best, at = run, -1
        for i, (act, a, n) in enumerate(tr):
            if act == 'alloc':
                run += n
                if run > best: best, at = run, i
            elif act == 'free_completed': run -= n
        g = at + 1; pr = {}
        for b in B:
            if b[0] < g and (b[1] is None or b[1] >= g): pr[prim[id(b)]] = pr.get(prim[id(b)], 0) + b[3]
        peak = {'event': at, 'bytes': best, 'requested_bytes.all.peak': raw['memory_stats'].get('requested_bytes.all.peak'), 'roles': dict(sorted(pr.items(), key=lambda x: -x[1]))}
        checks['peak_equals_stats'] = best == peak['requested_bytes.all.peak']
    blk = []
    for b in B:
        if prim[id(b)] == 'other': continue
        blk.append([b[0], b[1], b[2], b[3], prim[id(b)], sorted(role[id(b)] - {prim[id(b)]})])
    steps = [E(g) for g in raw['steps'] if g >= G0 + max(dropped, 0)]; micro = [E(g) for g in raw['micro'] if g >= G0 + max(dropped, 0)]
    t = {'program': J['prog'], 'recording': J['file'] + '.pickle', 'script': J['prog'] + '.py', 'history': J['history'], 'stacks': J['stacks'], 'leak': J.get('leak'), 'device': raw['device'], 'torch': raw['torch'],
         'events': len(tr), 'events_dropped': max(dropped, 0), 'steps': {'count': len(steps), 'starts': steps, 'micro_count': len(micro), 'micro_starts': micro},
         'phases': [[n, s, max(0, E(b)), E(e)] for n, s, b, e in raw['phases'] if e is not None and e > G0 + max(dropped, 0)], 'peak': peak, 'memory_stats': raw['memory_stats'],
         'instants': inst, 'blocks': blk, 'params': {k: [m(v[0])] + v[1:] for k, v in src['params'].items()}, 'notes': {**src['notes'], **raw['notes']}, 'checks': checks}
    if J.get('leak') is not None:
        fr = raw.get('frames')
        if not fr:
            pj = [j for j in jobs if j['prog'] == J['prog'] and j.get('leak') == J['leak'] and j['stacks'] == 'python' and j['history'] == J['history']]
            if pj and os.path.exists(f"{out}/{pj[0]['file']}.raw.xz"): fr = load(out, pj[0]).get('frames')
        ends = steps[1:] + [len(tr)]; per = []; lb = []
        for k, (s, e) in enumerate(zip(steps, ends)):
            mine = [b for b in B if s <= b[0] - d < e and b[1] is None and prim[id(b)] not in CORE + ('workspace',)]
            per.append([sum(b[3] for b in mine), len(mine)])
            if 0 < k < len(steps) - 1:
                for b in mine: f = fr[b[0] - d] if fr and b[0] - d < len(fr) else None; lb.append([b[0] - d, b[2], b[3], k] + (list(f) if f else [None, None, None]))
        srcl = open(f"{os.environ.get('TRAIN', '/home/user/train')}/{J['prog']}.py").read().splitlines()
        cul = [{'file': f"/home/user/train/{J['prog']}.py", 'line': i + 1, 'code': re.sub(r'\s*#\s*LEAK.*', '', l).strip()} for i, l in enumerate(srcl) if '# LEAK' in l]
        lines = {}
        for x in lb: key = f'{x[4]}:{x[5]}'; lines[key] = lines.get(key, 0) + x[2]
        t['leaks'] = {'leaks': bool(J['leak']), 'kept_by': cul if J['leak'] else [], 'per_step_bytes_and_blocks': per, 'blocks': lb, 'allocated_at': dict(sorted(lines.items(), key=lambda x: -x[1]))}
    json.dump(t, open(f"{out}/{J['file']}.truth.json", 'w'), separators=(',', ':'))

def report(out, jobs):
    for J in sorted(jobs, key=lambda j: j['file']):
        f = f"{out}/{J['file']}"
        if not os.path.exists(f + '.truth.json'): continue
        t = json.load(open(f + '.truth.json')); c = t['checks']; sz = os.path.getsize(f + '.pickle.xz') if os.path.exists(f + '.pickle.xz') else 0
        v = c['truth_addresses_live']
        p = t['peak'] or {}; pb = p.get('bytes') or 1
        line = f"{J['file']:38} ev {t['events']:6} xz {sz // 1024:5}K st {t['steps']['count']:2}/{t['steps']['micro_count']} in {len(t['instants']):3} live {v[0]}/{v[1]} cnt {c['event_counts'][:90]} pk {c.get('peak_equals_stats')}"
        line += f" hook {c.get('same_events_as_hook_run')} adr {c.get('same_addresses_as_hook_run')} lost {c['labels_without_a_block']} old {c.get('older_blocks_matched')}"
        if c.get('first_difference'): line += f" DIFF {c['first_difference']}"
        if J['stacks'] == 'python': line += ' PEAK ' + ' '.join(f"{k}:{v / pb:.2f}" for k, v in list((p.get('roles') or {}).items())[:6])
        if 'leaks' in t: line += ' LEAK ' + ','.join(f'{a // 1024}K/{b}' for a, b in t['leaks']['per_step_bytes_and_blocks'])
        print(line, flush=True)

if __name__ == '__main__':
    import sys
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from jobs import JOBS
    out = sys.argv[1]; mine = [j for j in JOBS if os.path.exists(f"{out}/{j['file']}.raw.xz")]
    for j in mine:
        if j.get('hook') or (len(sys.argv) > 2 and not any(a in j['file'] for a in sys.argv[2:])): continue
        try: merge(out, j, JOBS)
        except Exception as e: import traceback; traceback.print_exc(); print('MERGE FAILED', j['file'])
    report(out, [j for j in mine if not j.get('hook')])
