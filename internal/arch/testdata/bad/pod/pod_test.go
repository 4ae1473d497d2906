package pod

import _ "go.etcd.io/etcd" // past the door, in a test
