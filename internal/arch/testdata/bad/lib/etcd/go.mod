module go.etcd.io/etcd
