"""Tables as data, their builders and the formats that they are written in; `registry` lists them all."""
