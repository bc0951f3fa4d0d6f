// Package kerberos logs in to Kerberos 5 realms and authenticates connections to Hadoop's daemons by SASL GSSAPI. Layer L1;
// imports yarnrpc/ipc. The messages and the cryptography are gokrb5's; what it lacks is here: configuration files as MIT
// krb5 reads them, exchanges that end with a context and go on to the next KDC, mutual authentication, and messages that
// are protected in both directions.
//
// Main flow: LoadConfig, FromKeytab or FromCache, Login.Mechanism for ipc.WithMechanisms, Close.
//
// Invariants:
//  1. No key, password or ticket is in an error, a log or a String.
//  2. A server is believed after it has proved that it holds the key of the principal that the configuration names.
//  3. A Login replaces its ticket before it ends: by the keytab at 0.8 of its life, by renewal, or by what kinit has put into
//     the cache meanwhile. Only connections that are opened then see the new one.
//  4. Errors that a person has to act on wrap ipc.ErrLogin and are not repeated; a KDC that does not answer is.
//
// Source: RFC 4120 (messages), RFC 4121 (GSS tokens), RFC 4752 (SASL), MIT krb5 1.20 (files), hadoop-common SaslRpcClient.
package kerberos
