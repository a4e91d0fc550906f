"""Which hardware serves: devices, how many, how a model is split over them, and what it costs."""
