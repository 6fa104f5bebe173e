"""The control plane: what jobs are asked and told over HTTP."""
