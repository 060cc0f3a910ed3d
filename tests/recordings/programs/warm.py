"""warm.py OUT: records programs that train, three steps after a warm-up of three, with and without stacks. Beside each NAME.pickle,
NAME.json has the addresses and bytes of weights, gradients and optimizer state at the end. Needs a GPU, transformers, torchvision and peft."""
import os,sys,time,json,pickle,traceback,random,copy
os.environ['HF_HUB_OFFLINE']='1'
import torch,torch.nn as nn,torch.nn.functional as F
D='cuda'
class T: pass
class OwnAdamW(torch.optim.Optimizer):
    def __init__(s,ps,lr=1e-3): super().__init__(ps,dict(lr=lr))
    @torch.no_grad()
    def step(s):
        for g in s.param_groups:
            for p in g['params']:
                if p.grad is None: continue
                st=s.state[p]; gr=p.grad.data; m=st.get('m',torch.zeros_like(gr)); v=st.get('v',torch.zeros_like(gr))
                m=0.9*m+0.1*gr; v=0.99*v+0.01*torch.square(gr); p.data-=g['lr']*m/(torch.sqrt(v)+1e-8); st['m']=m; st['v']=v
class OwnSGD(torch.optim.Optimizer):
    def __init__(s,ps,lr=1e-3): super().__init__(ps,dict(lr=lr))
    def step(s):
        for g in s.param_groups:
            for p in g['params']:
                if p.grad is not None: p.data-=g['lr']*p.grad.data
class Muon(torch.optim.Optimizer):
    def __init__(s,ps,lr=1e-3): super().__init__(ps,dict(lr=lr))
    @torch.no_grad()
    def step(s):
        for g in s.param_groups:
            for p in g['params']:
                if p.grad is None: continue
                st=s.state[p]
                if 'b' not in st: st['b']=torch.zeros_like(p.grad)
                b=st['b'].mul_(.95).add_(p.grad); u=b
                if p.ndim==2:
                    X=b.bfloat16(); X=X/(X.norm()+1e-7)
                    if X.size(0)>X.size(1): X=X.T
                    for _ in range(5): A=X@X.T; X=3.4445*X+(-4.775*A+2.0315*A@A)@X
                    u=X.T if b.size(0)>b.size(1) else X
                p.add_(u.to(p.dtype),alpha=-g['lr'])
def gpt(n=6,d=512,v=8000,**k):
    from transformers import GPT2Config,GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=n,n_embd=d,n_head=8,vocab_size=v,n_positions=512,bos_token_id=0,eos_token_id=1,pad_token_id=2,**k))
def mlp(): return nn.Sequential(nn.Linear(1024,2048),nn.GELU(),nn.Linear(2048,2048),nn.GELU(),nn.Linear(2048,1000)).to(D)
def cnn():
    import torchvision; return torchvision.models.resnet18().to(D)
def lm(make,opt,zero,body=None,accum=1,n=2,warm=3,m=None):
    m=(m or gpt()).to(D); ps=[p for p in m.parameters() if p.requires_grad]; o=make(ps); T.ms=[m]; T.opt=[o]
    def step():
        for _ in range(accum):
            x=torch.randint(0,8000,(4,256),device=D); (m(x,labels=x).loss/accum).backward()
        o.step(); zero(o)
    return step
none=lambda o:o.zero_grad(); inplace=lambda o:o.zero_grad(set_to_none=False); never=lambda o:None
def own_adam_never(): return lm(OwnAdamW,0,never)
def own_adam_inplace_accum(): return lm(OwnAdamW,0,inplace,accum=3)
def own_adam_none(): return lm(OwnAdamW,0,none)
def own_sgd_never(): return lm(OwnSGD,0,never)
def sgd_inplace(): return lm(lambda p:torch.optim.SGD(p,1e-3),0,inplace)
def sgd_loop_inplace(): return lm(lambda p:torch.optim.SGD(p,1e-3,foreach=False),0,inplace)
def sgdm_inplace(): return lm(lambda p:torch.optim.SGD(p,1e-3,momentum=.9),0,inplace)
def sgdm_none(): return lm(lambda p:torch.optim.SGD(p,1e-3,momentum=.9),0,none)
def adam_inplace(): return lm(lambda p:torch.optim.AdamW(p),0,inplace)
def adam_fused_inplace(): return lm(lambda p:torch.optim.AdamW(p,fused=True),0,inplace)
def adam_loop_inplace(): return lm(lambda p:torch.optim.AdamW(p,foreach=False),0,inplace)
def adam_none_accum(): return lm(lambda p:torch.optim.AdamW(p),0,none,accum=3)
def adagrad_inplace(): return lm(lambda p:torch.optim.Adagrad(p),0,inplace)
def adafactor_none(): return lm(lambda p:torch.optim.Adafactor(p),0,none)
def rmsprop_inplace(): return lm(lambda p:torch.optim.RMSprop(p),0,inplace)
def lion_like_none(): return lm(Muon,0,none)
def muon_inplace(): return lm(Muon,0,inplace)
def lora_inplace():
    from transformers import LlamaConfig,LlamaForCausalLM
    from peft import LoraConfig,get_peft_model
    b=LlamaForCausalLM(LlamaConfig(hidden_size=512,intermediate_size=1408,num_hidden_layers=6,num_attention_heads=8,vocab_size=8000))
    return lm(lambda p:torch.optim.AdamW(p),0,inplace,m=get_peft_model(b,LoraConfig(r=16,target_modules=['q_proj','v_proj'],task_type='CAUSAL_LM')))
def ema_none():
    m=gpt().to(D); e=copy.deepcopy(m).requires_grad_(False); o=torch.optim.AdamW(m.parameters()); T.ms=[m,e]; T.opt=[o]
    def step():
        x=torch.randint(0,8000,(4,256),device=D); m(x,labels=x).loss.backward(); o.step(); o.zero_grad()
        with torch.no_grad():
            for a,b in zip(e.parameters(),m.parameters()): a.lerp_(b,.01)
    return step
def ema_inplace():
    m=gpt().to(D); e=copy.deepcopy(m).requires_grad_(False); o=torch.optim.AdamW(m.parameters()); T.ms=[m,e]; T.opt=[o]
    def step():
        x=torch.randint(0,8000,(4,256),device=D); m(x,labels=x).loss.backward(); o.step(); o.zero_grad(set_to_none=False)
        with torch.no_grad():
            for a,b in zip(e.parameters(),m.parameters()): a.lerp_(b,.01)
    return step
def in_backward():
    m=gpt().to(D); T.ms=[m]; os_={p:torch.optim.SGD([p],1e-3,momentum=.9,foreach=False) for p in m.parameters()}; T.opt=list(os_.values())
    def hook(p): os_[p].step(); os_[p].zero_grad()
    for p in m.parameters(): p.register_post_accumulate_grad_hook(hook)
    def step():
        x=torch.randint(0,8000,(4,256),device=D); m(x,labels=x).loss.backward()
    return step
def gan_inplace():
    G=nn.Sequential(nn.ConvTranspose2d(100,512,4,1,0),nn.BatchNorm2d(512),nn.ReLU(),nn.ConvTranspose2d(512,256,4,2,1),nn.BatchNorm2d(256),nn.ReLU(),nn.ConvTranspose2d(256,128,4,2,1),nn.ReLU(),nn.ConvTranspose2d(128,3,4,2,1)).to(D)
    Dd=nn.Sequential(nn.Conv2d(3,128,4,2,1),nn.LeakyReLU(.2),nn.Conv2d(128,256,4,2,1),nn.LeakyReLU(.2),nn.Conv2d(256,512,4,2,1),nn.LeakyReLU(.2),nn.Conv2d(512,1,4,1,0)).to(D)
    a=torch.optim.Adam(G.parameters()); b=torch.optim.Adam(Dd.parameters()); T.ms=[G,Dd]; T.opt=[a,b]
    def step():
        x=torch.randn(32,3,32,32,device=D); z=torch.randn(32,100,1,1,device=D)
        b.zero_grad(set_to_none=False); f=G(z); (F.softplus(-Dd(x)).mean()+F.softplus(Dd(f.detach())).mean()).backward(); b.step()
        a.zero_grad(set_to_none=False); F.softplus(-Dd(f)).mean().backward(); a.step()
    return step
def amp_inplace():
    m=cnn(); o=torch.optim.SGD(m.parameters(),.1,momentum=.9,nesterov=True); s=torch.amp.GradScaler(); T.ms=[m]; T.opt=[o]
    def step():
        x=torch.randn(32,3,128,128,device=D); y=torch.randint(0,1000,(32,),device=D)
        with torch.autocast('cuda',torch.float16): l=F.cross_entropy(m(x),y)
        o.zero_grad(set_to_none=False); s.scale(l).backward(); s.unscale_(o); nn.utils.clip_grad_norm_(m.parameters(),1.); s.step(o); s.update()
    return step
def mlp_never():
    m=mlp(); o=torch.optim.SGD(m.parameters(),1e-3,foreach=False); T.ms=[m]; T.opt=[o]
    def step(): m(torch.randn(256,1024,device=D)).square().mean().backward(); o.step()
    return step
def style():
    import torchvision; net=torchvision.models.vgg16().features[:20].to(D).eval().requires_grad_(False); x=torch.randn(4,3,256,256,device=D,requires_grad=True); o=torch.optim.Adam([x],1e-2); t=net(torch.randn(4,3,256,256,device=D)).detach(); T.ms=[net]; T.opt=[o]; T.x=x
    def step():
        o.zero_grad(); F.mse_loss(net(x),t).backward(); o.step()
    return step
def lbfgs():
    m=mlp(); o=torch.optim.LBFGS(m.parameters(),history_size=4,max_iter=3); T.ms=[m]; T.opt=[o]; x=torch.randn(256,1024,device=D)
    def step():
        def c(): o.zero_grad(); l=m(x).square().mean(); l.backward(); return l
        o.step(c)
    return step
def ppo():
    m=gpt(4,384).to(D); v=gpt(2,384).to(D); o=torch.optim.AdamW([*m.parameters(),*v.parameters()]); T.ms=[m,v]; T.opt=[o]
    def step():
        x=torch.randint(0,8000,(4,16),device=D)
        with torch.no_grad(): y=m.generate(x,max_new_tokens=16,do_sample=True)
        for _ in range(2):
            lp=m(y).logits.log_softmax(-1).mean(); w=v(y).logits.mean(); (w-lp).backward(); o.step(); o.zero_grad()
    T.per=2
    return step
ALL=[own_adam_never,own_adam_inplace_accum,own_adam_none,own_sgd_never,sgd_inplace,sgd_loop_inplace,sgdm_inplace,sgdm_none,adam_inplace,adam_fused_inplace,adam_loop_inplace,adam_none_accum,adagrad_inplace,adafactor_none,rmsprop_inplace,lion_like_none,muon_inplace,lora_inplace,ema_none,ema_inplace,in_backward,gan_inplace,amp_inplace,mlp_never,style,lbfgs,ppo]
def child(f,stacks,out,name):
    fd=os.open(f'{out}/{name}.log',os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.dup2(fd,1); os.dup2(fd,2)
    torch.manual_seed(0); torch.cuda.init(); step=f(); T.n=3
    for _ in range(3): step()
    torch.cuda.synchronize(); torch.cuda.memory._record_memory_history(**(dict(context=None) if stacks=='none' else dict(stacks='python')))
    for _ in range(T.n): step()
    torch.cuda.synchronize(); snap=torch.cuda.memory._snapshot(); t=dict(name=name,steps=T.n*getattr(T,'per',1),roles={})
    def put(role,ts):
        for x in ts:
            if torch.is_tensor(x) and x.is_cuda: t['roles'].setdefault(str(x.untyped_storage().data_ptr()),[role,x.untyped_storage().nbytes()])
    ps=[p for m in T.ms for p in [*m.parameters(),*m.buffers()]]
    put('weights',ps); put('gradients',[p.grad for p in ps])
    def deep(v):
        if torch.is_tensor(v): yield v
        elif isinstance(v,dict):
            for w in v.values(): yield from deep(w)
        elif isinstance(v,(list,tuple)):
            for w in v: yield from deep(w)
    for o in T.opt: put('optimizer_state',deep(dict(enumerate(o.state.values()))))
    if hasattr(T,'x'): put('inputs',[T.x]); put('gradients',[T.x.grad])
    pickle.dump(snap,open(f'{out}/{name}.pickle','wb')); json.dump(t,open(f'{out}/{name}.json','w'))
if __name__=='__main__':
    out=sys.argv[1]; os.makedirs(out,exist_ok=True)
    import transformers,torchvision,peft
    from transformers import GPT2LMHeadModel,LlamaForCausalLM
    jobs=[(f,s,out,f'{f.__name__}.{s}') for f in ALL for s in ('python','none')]; run={}
    while jobs or run:
        while jobs and len(run)<10:
            j=jobs.pop(0); pid=os.fork()
            if not pid:
                rc=1
                try: child(*j); rc=0
                except BaseException: traceback.print_exc(); sys.stderr.flush()
                os._exit(rc)
            run[pid]=j
        pid,st=os.wait(); j=run.pop(pid)
        if st: print('FAILED',j[-1],open(f'{out}/{j[-1]}.log').read()[-400:],flush=True)
