"""Pictures of results and frames.

Each function draws into `ax`, or into a new figure of pyplot's, and returns the Axes. A notebook shows what a cell has
drawn; in a script `matplotlib.pyplot.show()` does, and `save` or `pyplot.savefig` keeps it.
"""

from simdnn.plot.canvas import apart, panels, save
from simdnn.plot.layers import plot_layers
from simdnn.plot.outputs import error_histogram, plot_pictures, saturation_map
from simdnn.plot.points import plot_accuracy_speed, plot_quality_speed

__all__ = [
    "apart",
    "error_histogram",
    "panels",
    "plot_accuracy_speed",
    "plot_layers",
    "plot_pictures",
    "plot_quality_speed",
    "saturation_map",
    "save",
]
