"""The numerical core of the fits; optimisers and Gaussians may import it too."""
