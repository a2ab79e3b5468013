"""What a memory holds and forgets, and how its transition acts: measured on the compiled rule."""

from mnemic.capacity.forgetting import Influence as Influence
from mnemic.capacity.forgetting import influence as influence
from mnemic.capacity.pairs import Held as Held
from mnemic.capacity.pairs import held as held
from mnemic.capacity.transition import Spectrum as Spectrum
from mnemic.capacity.transition import spectrum as spectrum
