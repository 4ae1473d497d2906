package pod

import _ "github.com/prometheus/common" // not through its only importer, in a test
