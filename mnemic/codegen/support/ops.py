"""Everything that a generated form calls, under one name."""

from .chunks import *  # noqa: F403
from .features import features as features
from .kernels import *  # noqa: F403
from .kept import append as append
from .kept import append_rows as append_rows
from .kept import recent as recent
from .links import *  # noqa: F403
from .moments import *  # noqa: F403
from .residuals import residual as residual
from .rows import *  # noqa: F403
