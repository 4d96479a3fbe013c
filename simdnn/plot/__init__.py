"""Pictures of results and frames.

Each function draws into `ax`, or into a new figure of pyplot's, and returns the Axes. A notebook shows what a cell has
drawn; in a script `matplotlib.pyplot.show()` does, and `save` or `pyplot.savefig` keeps it.
"""

from simdnn.plot.canvas import apart, panels, save
from simdnn.plot.cycles import plot_cycles, plot_ports
from simdnn.plot.formats import plot_format
from simdnn.plot.layers import plot_layers
from simdnn.plot.outputs import error_histogram, plot_pictures, saturation_map
from simdnn.plot.overhead import plot_overhead
from simdnn.plot.points import plot_accuracy_speed, plot_quality_speed
from simdnn.plot.roofline import plot_roofline
from simdnn.plot.timeline import plot_spans, plot_timeline
from simdnn.plot.traffic import plot_traffic

__all__ = [
    "apart",
    "error_histogram",
    "panels",
    "plot_accuracy_speed",
    "plot_cycles",
    "plot_format",
    "plot_layers",
    "plot_overhead",
    "plot_pictures",
    "plot_ports",
    "plot_quality_speed",
    "plot_roofline",
    "plot_spans",
    "plot_timeline",
    "plot_traffic",
    "saturation_map",
    "save",
]
