package minicluster

func (c *Cluster) startREST() error { return nil }
