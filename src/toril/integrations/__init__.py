"""Integrations with other libraries; import the modules that you need."""
