"""How a covariance is regularised on held-out rows.

| file | what it holds |
|---|---|
| blend.py | the plan of a `GivensCovariance`: a weighted sum of six precision matrices, chosen and applied |
| weights.py | the best weights of a sum of precision matrices |
| rotations.py | rotations grown on a covariance, and variances along them |
| spectrum.py | rules that correct variances along axes chosen from the same rows |
| shrinkage.py | linear shrinkage of a covariance and of its correlations |
| tree.py | Chow and Liu's tree |
| factor_analysis.py | a diagonal and rank-one terms |
| principal_axes.py | principal axes, with variances that held-out rows confirm |
| outlier_bound.py | a bound on squared distances |
| heavy_tails.py | more careful weights for few rows with heavy tails |
| factorise.py | a covariance written as rotations, variances along them and rank-one terms |
| noise.py | the plan of a `GivensMixture`: rotations and noise |
"""
