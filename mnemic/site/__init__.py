"""A site of systems that opens offline: their pages, the map, the audit and the guides."""

from mnemic.site.system import System as System
from mnemic.site.told import told as told
