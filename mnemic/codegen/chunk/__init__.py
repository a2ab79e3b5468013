"""The chunk form of a rule: what is carried, what is read, and the plan of both."""

from mnemic.codegen.chunk.following import carried as carried
from mnemic.codegen.chunk.following import carry_keys as carry_keys
from mnemic.codegen.chunk.following import carry_momentum as carry_momentum
from mnemic.codegen.chunk.following import kept as kept
from mnemic.codegen.chunk.following import remaining as remaining
from mnemic.codegen.chunk.form import build as build
from mnemic.codegen.chunk.parts import Chunk as Chunk
from mnemic.codegen.chunk.parts import rows_of_roles as rows_of_roles
from mnemic.codegen.chunk.parts import takes_band as takes_band
from mnemic.codegen.chunk.reads import dual_rows as dual_rows
from mnemic.codegen.chunk.reads import linear_read as linear_read
