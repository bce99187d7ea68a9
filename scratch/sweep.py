import sys, torch, time
sys.path[:0]=['src','.']
import swallowtail as st
from swallowtail.kernels.gpu import half_rounds
from swallowtail.kernels.gpu.half_rounds import Tile
def t(run,k=12):
    for _ in range(3): run()
    best=1e9
    for _ in range(3):
        a,b=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(k): run()
        b.record(); b.synchronize(); best=min(best,a.elapsed_time(b)/k*1e3)
    return best
base=dict(half_rounds.TILES)
end=time.monotonic()+float(sys.argv[1])
for n,key,tiles in ((2048,2312,[base[2312],Tile(16,8,3,4),Tile(16,8,3,8),Tile(16,16,2,4),Tile(16,16,3,4),Tile(32,16,1,8,True),Tile(16,8,3,4,True),Tile(32,16,1,4)]),
                    (4096,7000,[base[7000],Tile(16,16,1,8,True),Tile(16,16,1,4),Tile(16,32,1,4),Tile(16,32,1,8)])):
    m=2**27//n
    for dt in (torch.bfloat16,torch.float16):
        x=torch.randn(m,n,device='cuda',dtype=dt); y=torch.empty_like(x); c=t(lambda: y.copy_(x))
        truth=None
        for tile in tiles:
            if time.monotonic()>end: print('time over'); sys.exit()
            half_rounds.TILES.clear(); half_rounds.TILES.update(base); half_rounds.TILES[key]=tile
            H=st.SymmetricOperator(st.Rotation.random(n,seed=1).to("cuda",torch.float32),torch.linspace(.5,2,n,device="cuda"))
            try:
                z=H(x[:4096]).float()
                if truth is None: truth=z
                e=float((z-truth).norm()/truth.norm())
                print(n,dt,tuple(tile),f"H {t(lambda: H(x))/c:.2f} copies, diff {e:.1e}",flush=True)
            except Exception as error: print(n,dt,tuple(tile),'failed',repr(error)[:200],flush=True)
