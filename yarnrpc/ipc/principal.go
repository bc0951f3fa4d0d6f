package ipc

// HostPattern stands for the host of a server in a principal.
const HostPattern = "_HOST"

// ServerPrincipal is which server a client wants to talk to by Kerberos, as Hadoop's configuration says: any other that has
// a key in the realm could answer for it otherwise.
type ServerPrincipal struct {
	// Key of the configuration, for messages: "dfs.namenode.kerberos.principal".
	Key string
	// Name is service/host@REALM; _HOST is the host that was dialed, by the name in the address or by one that the address resolves to.
	Name string
	// Pattern takes the place of Name when set (the key with ".pattern" behind it): *, ? and [] in it stand for anything, for
	// servers of other realms.
	Pattern string
}
