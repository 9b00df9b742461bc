"""What a store can do, measured through a worker process: `toril bench`."""
