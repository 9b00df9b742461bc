"""What the parts of an app share: clock, logs, signals and calls to the store."""
