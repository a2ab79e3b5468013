"""The results of a search: the best specs, a page that opens offline, a leaderboard."""
