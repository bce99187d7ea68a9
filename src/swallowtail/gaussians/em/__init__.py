"""The Gaussians of a `GivensMixture`, and how EM goes.

| file | what it holds |
|---|---|
| start.py | where EM begins, and how a mixture is regularised |
| components.py | the Gaussians and their M-step |
| distances.py | Mahalanobis distances to all of them in one pass, for the E-step |
| background.py | a broad Gaussian beside them, for rows that are like none of them |
| online.py | EM from statistics: stepwise, or by reductions |
"""
