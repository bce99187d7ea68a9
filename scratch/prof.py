import sys, torch, time
sys.path[:0]=['src','.']
import swallowtail as st
from benchmarks.kernels.grouped import mnist_like_groups
from torch.profiler import profile, ProfilerActivity
def prof(name, run, k=5):
    for _ in range(4): run()
    torch.cuda.synchronize()
    a,b=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(20): run()
    b.record(); b.synchronize(); total=a.elapsed_time(b)/20*1e3
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        for _ in range(k): run()
        torch.cuda.synchronize()
    rows=[(e.key,e.self_device_time_total/k,e.count/k) for e in p.key_averages() if e.self_device_time_total>0]
    rows.sort(key=lambda r:-r[1])
    print(f"== {name}: {total:.0f} us; device {sum(r[1] for r in rows):.0f}")
    for r in rows[:9]: print(f"    {r[1]:8.1f} us x{r[2]:.1f} {r[0][:70]}")
def layer(wiring_or_n, dtype, total=2**26, name=""):
    l = st.nn.Rotate(wiring_or_n, init="random", seed=0, device="cuda") if isinstance(wiring_or_n,int) else st.nn.Rotate(wiring=wiring_or_n, init="random", seed=0, device="cuda")
    n=l.angles.numel() and (wiring_or_n if isinstance(wiring_or_n,int) else wiring_or_n.n)
    x=torch.randn(total//n,n,device="cuda",dtype=dtype).requires_grad_(); g=torch.randn(total//n,n,device="cuda",dtype=dtype)
    y=torch.empty_like(g)
    prof(f"copy {n} {dtype}", lambda: y.copy_(g), 2)
    prof(f"{name} {n} {dtype} forward", lambda: l(x))
    prof(f"{name} {n} {dtype} fwd+bwd", lambda: torch.autograd.grad(l(x),(x,l.angles),g))
W=mnist_like_groups("cuda").wiring
for dt in (torch.bfloat16,torch.float32): layer(W,dt,2**27,"rounds")

