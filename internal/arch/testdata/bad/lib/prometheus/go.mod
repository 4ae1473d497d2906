module github.com/prometheus/common
