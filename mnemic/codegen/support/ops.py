"""Everything that a generated form calls, under one name."""

from .chunks import *  # noqa: F403
from .conjugate import cholesky_rows as cholesky_rows
from .conjugate import conjugated as conjugated
from .conjugate import ridge_solved as ridge_solved
from .features import features as features
from .links import *  # noqa: F403
from .matrices import *  # noqa: F403
from .moments import *  # noqa: F403
from .residuals import residual as residual
from .rows import *  # noqa: F403
