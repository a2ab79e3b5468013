"""The chunk form of a rule: what is carried, what is read, and the plan of both."""

from mnemic.codegen.chunk.following import decay_to_end as decay_to_end
from mnemic.codegen.chunk.following import remaining as remaining
from mnemic.codegen.chunk.form import build as build
from mnemic.codegen.chunk.parts import Chunk as Chunk
from mnemic.codegen.chunk.parts import Source as Source
from mnemic.codegen.chunk.parts import source_of as source_of
from mnemic.codegen.chunk.parts import step_factor as step_factor
from mnemic.codegen.chunk.parts import takes_band as takes_band
from mnemic.codegen.chunk.systems import inverse_of as inverse_of
from mnemic.codegen.chunk.systems import mixing_of as mixing_of
from mnemic.codegen.chunk.systems import seen_by_channel as seen_by_channel
