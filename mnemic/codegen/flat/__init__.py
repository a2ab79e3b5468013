"""A compiled folder as it is published: flat, and with the support that it needs, no more."""

from mnemic.codegen.flat.published_files import published as published
