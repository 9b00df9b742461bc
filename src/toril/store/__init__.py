"""The interface between Toril and its stores."""
