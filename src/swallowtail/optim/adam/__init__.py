"""Adam in rotated bases. Each file imports only from those below it:

optimizer    GivensAdam, the torch.optim.Optimizer: arguments, state_dict, which parameters go together
ahead        steps launched without waiting for the one before (GPU)
replay       launches recorded as CUDA graphs (GPU)
step         the update as a function; one step over all stacks
small        steps on small parameters (CPU)
compiled     their arithmetic, by Numba
mailbox      what host and device tell each other about a step (GPU)
bases        Q_L and Q_R: into them, out of them, from one to the next
fit          which basis a side gets, and its fit
statistics   what is kept of past gradients
groups       sides of dense groups: their moments, their fit
gpu          `gpu_for`, which decides whether GPU kernels are used; their launches; the kernels
state        the records: Side, Numbers, DeviceNumbers, Stack
"""

from swallowtail.optim.adam.optimizer import GivensAdam

__all__ = ["GivensAdam"]
