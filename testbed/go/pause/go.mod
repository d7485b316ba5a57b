module flux-operator.testbed/pause

go 1.26.0
