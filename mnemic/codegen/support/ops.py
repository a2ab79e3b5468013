"""Everything that a generated form calls, under one name."""

from .adjoints import *  # noqa: F403
from .by_memory import by_memory as by_memory
from .by_memory import compiled_parts as compiled_parts
from .carried import carried_keys as carried_keys
from .chunks import *  # noqa: F403
from .conjugate import cholesky_rows as cholesky_rows
from .conjugate import conjugated as conjugated
from .conjugate import ridge_solved as ridge_solved
from .features import features as features
from .implicit import new_error as new_error
from .implicit import steep as steep
from .interpolation import *  # noqa: F403
from .kept import append as append
from .kept import append_rows as append_rows
from .kept import recent as recent
from .kept_attention import *  # noqa: F403
from .kept_graphs import keep_up_to as keep_up_to
from .kernels import *  # noqa: F403
from .levels import *  # noqa: F403
from .links import *  # noqa: F403
from .local import *  # noqa: F403
from .matrices import *  # noqa: F403
from .moments import *  # noqa: F403
from .pulled_back import pulled_back as pulled_back
from .residuals import residual as residual
from .residuals import residual_vjp as residual_vjp
from .row_states import *  # noqa: F403
from .rows import *  # noqa: F403
from .simplices import *  # noqa: F403
from .slices import each as each
