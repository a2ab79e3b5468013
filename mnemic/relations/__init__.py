"""Relations between systems: found by algebra, confirmed in numbers, drawn as a map."""

from mnemic.relations.confirm import confirm as confirm
from mnemic.relations.graph import Map as Map
from mnemic.relations.graph import build as build
from mnemic.relations.relation import Relation as Relation
from mnemic.relations.remembered import remembered as remembered
from mnemic.relations.search import related as related
