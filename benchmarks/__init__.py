"""The benchmarks, one package per subject; rows go to benchmarks/results.

python -m benchmarks.kernels           kernels
python -m benchmarks.kernels.plot      draw the kernels' rows
python -m benchmarks.fitting           fits beside low rank and pyfaust
python -m benchmarks.fitting.grouped   rounds of groups beside free pairs; it only prints
python -m benchmarks.tracking          a matrix that moves
python -m benchmarks.gaussians         covariances, mixtures, Laplace posteriors
python -m benchmarks.optim             optimisers
python -m benchmarks.optim.gpu         what an optimiser's step costs on a GPU
"""
