"""The benchmarks, one package per subject; rows go to benchmarks/results.

python -m benchmarks.run             kernels
python -m benchmarks.kernels.plot    draw the kernels' rows
python -m benchmarks.fitting
python -m benchmarks.tracking
python -m benchmarks.gaussians
python -m benchmarks.optim
python -m benchmarks.optim.gpu
"""
