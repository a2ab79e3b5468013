"""A site of systems that opens offline: their pages, the map, the audit and the guides."""

from mnemic.site.description import describe as describe
from mnemic.site.system import System as System
