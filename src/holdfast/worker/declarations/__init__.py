"""The declarations of a processor: states, types and handlers, and the conversion of state stored earlier."""
