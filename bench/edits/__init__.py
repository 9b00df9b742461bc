"""What becomes of a workflow whose code is edited while it sleeps, with Toril and with others."""
