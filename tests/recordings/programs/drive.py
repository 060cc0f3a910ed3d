"""python3 drive.py OUT GROUP...   runs programs in forked children, many at a time, then merges truths. DRY=1: on the CPU, logic only."""
import os, sys, time, json, pickle, signal, traceback
os.environ.setdefault('PYTORCH_NVML_BASED_CUDA_CHECK', '1'); os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
os.environ.setdefault('TORCHINDUCTOR_COMPILE_THREADS', '1'); os.environ.setdefault('HF_HUB_OFFLINE', '1'); os.environ.setdefault('CUDA_MODULE_LOADING', 'LAZY')
HERE = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, HERE)
from jobs import JOBS   # list of dicts
t_start = time.time()
def say(*a): print(f'{time.time() - t_start:6.1f}', *a, flush=True)

def child(J):
    out = J['out']; log = os.open(f"{out}/{J['file']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644); os.dup2(log, 1); os.dup2(log, 2)
    if 'compile' in J['prog'] or J.get('compile'):
        os.environ['TORCHINDUCTOR_CACHE_DIR'] = f"/tmp/ind_{J['file']}"; os.environ['TRITON_CACHE_DIR'] = f"/tmp/tri_{J['file']}"
    if J.get('dist'): os.environ.update(RANK='0', WORLD_SIZE='1', LOCAL_RANK='0', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(20000 + os.getpid() % 20000))
    import torch, truth, random
    torch.set_num_threads(2); torch.manual_seed(0); random.seed(0)
    T = truth.T; T.job = J
    os.environ['LEAK'] = '1' if J.get('leak') else '0'
    path = f"{os.environ.get('TRAIN', '/home/user/train')}/{J['prog']}.py"
    os.chdir(os.path.dirname(path)); sys.path.insert(0, os.path.dirname(path)); sys.argv = [path]
    src = open(path).read(); g = {'__name__': '__main__', '__file__': path, '__builtins__': __builtins__}
    import linecache; main = type(sys)('__main__'); main.__dict__.update(g); sys.modules['__main__'] = main
    exec(compile(src, path, 'exec'), main.__dict__)
    T.finish()

def spawn(fn, *a):
    pid = os.fork()
    if pid: return pid
    rc = 1
    try: fn(*a); rc = 0
    except BaseException: traceback.print_exc()
    try: sys.stdout.flush(); sys.stderr.flush()
    except Exception: pass
    os._exit(rc)

def pool(work, n, limit):
    """work: list of (key, fn, args). Returns {key: (rc, seconds)}."""
    run = {}; res = {}; work = list(work)
    while work or run:
        while work and len(run) < n:
            k, fn, a = work.pop(0); run[spawn(fn, *a)] = (k, time.time())
        pid, st = os.waitpid(-1, os.WNOHANG)
        if pid and pid in run: k, t = run.pop(pid); res[k] = (os.waitstatus_to_exitcode(st), round(time.time() - t, 1)); continue
        for p, (k, t) in list(run.items()):
            if time.time() - t > limit: os.kill(p, signal.SIGKILL)
        time.sleep(0.02)
    return res

def test_cuda():
    import torch; torch.zeros(1, device='cuda')

if __name__ == '__main__':
    out = sys.argv[1]; groups = sys.argv[2:]; os.makedirs(out, exist_ok=True)
    dry = os.environ.get('DRY') == '1'
    import torch, truth
    import transformers, torchvision, timm, peft, lightning
    from transformers import GPT2LMHeadModel, LlamaForCausalLM, Trainer, DynamicCache
    from torch.distributed.fsdp import fully_shard
    import torch._dynamo, torch.utils.checkpoint
    say('imported', torch.__version__, transformers.__version__, 'cuda initialized:', torch.cuda.is_initialized())
    jobs = [dict(j, out=out) for j in JOBS if any(g in j['groups'] or g == j['prog'] for g in groups)]
    if dry: jobs = [j for j in jobs if j.get('hook') or (j['stacks'] == 'python' and not any(k.get('hook') for k in jobs if k['prog'] == j['prog']))]
    jobs.sort(key=lambda j: -j.get('cost', 1))
    if not dry:
        r = pool([('test', test_cuda, ())], 1, 60); say('fork test', r)
        if r['test'][0]: say('CUDA does not work in forked children'); sys.exit(3)
    n = int(os.environ.get('PAR', '14'))
    res = pool([(j['file'], child, (j,)) for j in jobs], n, int(os.environ.get('LIMIT', '150')))
    say('ran', len(res), 'failed', [k for k, v in res.items() if v[0]])
    for k, v in sorted(res.items()):
        if v[0]:
            say('FAILED', k, v); t = open(f'{out}/{k}.log').read().strip().splitlines()[-int(os.environ.get('TAIL', '12')):]; print('   ' + '\n   '.join(x[:300] for x in t), flush=True)
    say('seconds', {k: v[1] for k, v in res.items()})
    if dry: sys.exit(0)
    say('done')
