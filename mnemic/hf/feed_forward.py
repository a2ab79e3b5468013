"""The feed-forward of a block; a model's folder has the whole of it under this name."""

from mnemic.models.feed_forward import make_feed_forward as make_feed_forward
