"""kinds.py OUT [NAME,NAME]: records programs of many kinds in forked children, with and without stacks, then under caps of what they reserve.
Beside each NAME.pickle, NAME.json has what the program counted itself. Lines of the recordings are those of a longer version."""
import os, sys, time, json, pickle, traceback, copy, random, lzma
os.environ.setdefault('PYTORCH_NVML_BASED_CUDA_CHECK','1'); os.environ['HF_HUB_OFFLINE']='1'; os.environ['TOKENIZERS_PARALLELISM']='false'; os.environ['TORCHINDUCTOR_COMPILE_THREADS']='1'
import torch, torch.nn as nn, torch.nn.functional as F
D='cuda'
class T: steps=0; note={}
def params(*ms): T.ms=ms
def bart():
    from transformers import BartConfig, BartForConditionalGeneration
    c=BartConfig(vocab_size=8000,d_model=512,encoder_layers=6,decoder_layers=6,encoder_ffn_dim=2048,decoder_ffn_dim=2048,encoder_attention_heads=8,decoder_attention_heads=8)
    m=BartForConditionalGeneration(c).to(D); o=torch.optim.AdamW(m.parameters(),1e-4); params(m); T.opt=[o]
    for i in range(4):
        T.steps+=1
        x=torch.randint(0,8000,(16,256),device=D); y=torch.randint(0,8000,(16,192),device=D)
        loss=m(input_ids=x,labels=y).loss; loss.backward(); o.step(); o.zero_grad()
def gpt(n=6,d=512,v=8000,**k):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=n,n_embd=d,n_head=8,vocab_size=v,n_positions=1024,bos_token_id=0,eos_token_id=1,pad_token_id=2,**k))
def dpo():
    m=gpt().to(D); ref=gpt().to(D).eval().requires_grad_(False); o=torch.optim.AdamW(m.parameters(),1e-5); params(m,ref); T.opt=[o]
    def lp(mod,x): return mod(x).logits[:,:-1].log_softmax(-1).gather(-1,x[:,1:,None]).squeeze(-1).sum(-1)
    for i in range(4):
        T.steps+=1
        c=torch.randint(0,8000,(4,256),device=D); r=torch.randint(0,8000,(4,256),device=D)
        with torch.no_grad(): a,b=lp(ref,c),lp(ref,r)
        loss=-F.logsigmoid(0.1*((lp(m,c)-a)-(lp(m,r)-b))).mean(); loss.backward(); o.step(); o.zero_grad()
def maml():
    from torch.func import functional_call
    m=nn.Sequential(*[nn.Sequential(nn.Conv2d(3 if i==0 else 64,64,3,padding=1),nn.BatchNorm2d(64,track_running_stats=False),nn.ReLU(),nn.MaxPool2d(2)) for i in range(4)],nn.Flatten(),nn.Linear(64*25,5)).to(D); o=torch.optim.Adam(m.parameters(),1e-3); params(m); T.opt=[o]
    for i in range(4):
        T.steps+=1
        o.zero_grad(); tot=0
        for task in range(3):
            w=dict(m.named_parameters()); x=torch.randn(25,3,84,84,device=D); y=torch.randint(0,5,(25,),device=D)
            for k in range(3):
                l=F.cross_entropy(functional_call(m,w,(x,)),y); g=torch.autograd.grad(l,list(w.values()),create_graph=True); w={n:p-0.1*q for (n,p),q in zip(w.items(),g)}
            tot=tot+F.cross_entropy(functional_call(m,w,(x,)),y)
        tot.backward(); o.step()
def lora_ckpt():
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from peft import LoraConfig, get_peft_model
    b=Qwen2ForCausalLM(Qwen2Config(hidden_size=896,intermediate_size=2432,num_hidden_layers=10,num_attention_heads=14,num_key_value_heads=2,vocab_size=16000)).to(D,torch.bfloat16); b.gradient_checkpointing_enable(); b.enable_input_require_grads()
    m=get_peft_model(b,LoraConfig(r=16,target_modules=['q_proj','v_proj','down_proj'],task_type='CAUSAL_LM')); m.train(); o=torch.optim.AdamW([p for p in m.parameters() if p.requires_grad],1e-4); params(m); T.opt=[o]
    for i in range(3):
        for k in range(2):
            x=torch.randint(0,16000,(4,512),device=D); (m(input_ids=x,labels=x).loss/2).backward()
        T.steps+=1; o.step(); o.zero_grad()
def vqgan():
    e=nn.Sequential(nn.Conv2d(3,64,4,2,1),nn.ReLU(),nn.Conv2d(64,128,4,2,1),nn.ReLU(),nn.Conv2d(128,64,3,1,1)).to(D); g=nn.Sequential(nn.ConvTranspose2d(64,128,4,2,1),nn.ReLU(),nn.ConvTranspose2d(128,64,4,2,1),nn.ReLU(),nn.Conv2d(64,3,3,1,1)).to(D); d=nn.Sequential(nn.Conv2d(3,64,4,2,1),nn.LeakyReLU(.2),nn.Conv2d(64,128,4,2,1),nn.LeakyReLU(.2),nn.Conv2d(128,1,4,2,1)).to(D); cb=nn.Embedding(1024,64).to(D)
    oa=torch.optim.Adam([*e.parameters(),*g.parameters(),*cb.parameters()],1e-4); ob=torch.optim.Adam(d.parameters(),1e-4); params(e,g,d,cb); T.opt=[oa,ob]
    for i in range(5):
        T.steps+=1
        x=torch.randn(16,3,128,128,device=D); z=e(x).permute(0,2,3,1); f=z.reshape(-1,64); k=torch.cdist(f,cb.weight).argmin(1); q=cb(k).view_as(z); l=F.mse_loss(q,z.detach())+F.mse_loss(z,q.detach()); q=z+(q-z).detach(); y=g(q.permute(0,3,1,2))
        la=F.l1_loss(y,x)+l-d(y).mean(); oa.zero_grad(); la.backward(); oa.step()
        xr=x.requires_grad_(); pr=d(xr); gp=torch.autograd.grad(pr.sum(),xr,create_graph=True)[0].pow(2).mean(); lb=F.relu(1-pr).mean()+F.relu(1+d(y.detach())).mean()+gp; ob.zero_grad(); lb.backward(); ob.step()
def leak_total():
    m=gpt(4,256).to(D); o=torch.optim.AdamW(m.parameters(),1e-4); params(m); T.opt=[o]; total=0
    for i in range(6):
        T.steps+=1; x=torch.randint(0,8000,(4,128),device=D); loss=m(x,labels=x).loss; loss.backward(); o.step(); o.zero_grad(); total=total+m(x).logits.mean()
def hf_eval():
    from transformers import Trainer, TrainingArguments, BertConfig, BertForSequenceClassification
    m=BertForSequenceClassification(BertConfig(hidden_size=384,num_hidden_layers=6,num_attention_heads=6,intermediate_size=1536,vocab_size=8000,num_labels=4)); params(m)
    ds=[dict(input_ids=torch.randint(0,8000,(128,)),attention_mask=torch.ones(128,dtype=torch.long),labels=torch.tensor(i%4)) for i in range(96)]
    tr=Trainer(m,TrainingArguments('/tmp/hf%d'%os.getpid(),per_device_train_batch_size=16,per_device_eval_batch_size=32,max_steps=6,eval_strategy='steps',eval_steps=3,save_strategy='no',report_to=[],logging_steps=1,disable_tqdm=True,bf16=True),train_dataset=ds,eval_dataset=ds)
    T.opt=[]; T.steps=6; tr.train(); T.opt=[tr.optimizer.optimizer if hasattr(tr.optimizer,'optimizer') else tr.optimizer]
ALL = [bart, dpo, maml, lora_ckpt, vqgan, leak_total, hf_eval]
def child(f,stacks,cap,out,name):
    fd=os.open(f'{out}/{name}.log',os.O_WRONLY|os.O_CREAT|os.O_TRUNC); os.dup2(fd,1); os.dup2(fd,2)
    torch.manual_seed(0); random.seed(0); torch.cuda.init()
    if cap: torch.cuda.set_per_process_memory_fraction(cap/torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.memory._record_memory_history(**(dict(context=None) if stacks=='none' else dict(stacks='python')))
    t=dict(name=name,oom=False)
    try: f()
    except torch.OutOfMemoryError as e: t['oom']=True; t['error']=str(e)[:600]; snap=torch.cuda.memory._snapshot()
    torch.cuda.synchronize()
    if not t['oom']: snap=torch.cuda.memory._snapshot()
    st=torch.cuda.memory_stats()
    ns=lambda ts: sum({x.untyped_storage().data_ptr():x.untyped_storage().nbytes() for x in ts if x is not None and x.is_cuda}.values())
    ps=[p for m in getattr(T,'ms',()) for p in [*m.parameters(),*m.buffers()]]
    def opt(o): return [x for v in o.state.values() for x in (v.values() if isinstance(v,dict) else [v]) for x in (x if isinstance(x,(list,tuple)) else [x]) if torch.is_tensor(x)]
    t.update(steps=T.steps,weights=ns(ps),grads=ns([p.grad for p in ps if not (p.grad is not None and p.grad.is_sparse)]),opt=ns([x for o in getattr(T,'opt',[]) for x in opt(o)]),kept=ns([x for k in getattr(T,'keep',[]) for x in (k if isinstance(k,(tuple,list)) else [k])]),peak=st['active_bytes.all.peak'],reserved=st['reserved_bytes.all.peak'])
    pickle.dump(snap,open(f'{out}/{name}.pickle','wb')); json.dump(t,open(f'{out}/{name}.json','w'))
def pool(jobs,n,limit=200):
    run={}; jobs=list(jobs)
    while jobs or run:
        while jobs and len(run)<n:
            j=jobs.pop(0); pid=os.fork()
            if not pid:
                rc=1
                try: child(*j); rc=0
                except BaseException: traceback.print_exc(); sys.stderr.flush(); sys.stdout.flush()
                os._exit(rc)
            run[pid]=(j,time.time())
        pid,st=os.waitpid(-1,os.WNOHANG)
        if pid:
            j,t=run.pop(pid)
            if st: print('FAILED',j[-1],st,open(f'{j[3]}/{j[-1]}.log').read()[-500:],flush=True)
        for p,(j,t) in list(run.items()):
            if time.time()-t>limit: os.kill(p,9)
        time.sleep(0.02)
if __name__=='__main__':
    out=sys.argv[1]; os.makedirs(out,exist_ok=True); t0=time.time()
    import transformers, torchvision, timm, peft
    from transformers import BartForConditionalGeneration,WhisperForConditionalGeneration,CLIPModel,GPT2LMHeadModel,LlamaForCausalLM,Qwen2ForCausalLM,T5ForConditionalGeneration,Trainer,BertForSequenceClassification
    names=sys.argv[2].split(',') if len(sys.argv)>2 else None
    A=[f for f in ALL if not names or f.__name__ in names]
    pool([(f,s,None,out,f'{f.__name__}.{s}') for f in A for s in ('python','none')],10); print('runs',time.time()-t0,flush=True)
    J=[]
    for f in A:
        try: t=json.load(open(f'{out}/{f.__name__}.python.json'))
        except Exception: continue
        for k in (0.5,0.85): J+=[(f,s,int(t['reserved']*k),out,f'{f.__name__}.{s}.cap{int(k*100)}') for s in ('python','none')]
    pool(J,10); print('caps',time.time()-t0,flush=True)
