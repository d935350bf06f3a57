"""Studies and fits over many processes or machines: Dask, any executor, or in this process.

The results do not depend on the number of workers, on who does what, or on the order in which
they finish. Dask is needed for a Dask client only: ``pip install "rpukit[distributed]"``.
"""

from rpukit.distributed.fitting import fit
from rpukit.distributed.sweeping import Run, seed_of, sweep

__all__ = ["Run", "fit", "seed_of", "sweep"]
