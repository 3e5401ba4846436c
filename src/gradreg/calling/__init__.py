"""The one way in which a model that somebody else wrote is called."""
