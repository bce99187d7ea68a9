"""A page to look at a matrix and its fits: `swallowtail explore cov.npy`.

study    the matrix, its fits at several budgets, made in the background, and the rivals' curves
curves   the angle of the plain rivals at every budget
server   the page on this machine only
static   the same page as one file
page     what the browser gets: no library, nothing from the network
"""

from swallowtail.explorer.server import serve
from swallowtail.explorer.static import write_page
from swallowtail.explorer.study import Study

__all__ = ["Study", "serve", "write_page"]
