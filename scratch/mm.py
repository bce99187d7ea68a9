import torch, sys, time
sys.path[:0]=['src','.']
def t(run,k=10):
    for _ in range(3): run()
    a,b=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(k): run()
    b.record(); b.synchronize(); return a.elapsed_time(b)/k*1e3
m,n=171196,784
g=torch.randn(m,n,device='cuda',dtype=torch.bfloat16); y=torch.randn_like(g)
print('bmm1',t(lambda: torch.bmm(g[None].mT,y[None],out_dtype=torch.float32)))
print('mm',t(lambda: torch.mm(g.T,y,out_dtype=torch.float32)))
print('mm bf16 out',t(lambda: g.T@y))
for p in (2,4,8,16,32,64):
    k=m//p*p
    G,Y=g[:k].view(p,-1,n),y[:k].view(p,-1,n)
    print(p,'bmm',t(lambda: torch.bmm(G.mT,Y,out_dtype=torch.float32)),'with sum',t(lambda: torch.bmm(G.mT,Y,out_dtype=torch.float32).sum(0)))
    k2=m//(8*p)*8*p
    G,Y=g[:k2].view(p,-1,n),y[:k2].view(p,-1,n)
    print(p,'bmm, rows multiple of 8',t(lambda: torch.bmm(G.mT,Y,out_dtype=torch.float32)))
n=4096;m=32768
g=torch.randn(m,n,device='cuda',dtype=torch.bfloat16); y=torch.randn_like(g)
print('4096 bmm1',t(lambda: torch.bmm(g[None].mT,y[None],out_dtype=torch.float32)))
print('4096 mm',t(lambda: torch.mm(g.T,y,out_dtype=torch.float32)))
