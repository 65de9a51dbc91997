"""The same gateway, controller and jobs as functions."""
