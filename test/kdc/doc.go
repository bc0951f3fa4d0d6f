// Package kdc runs an MIT Kerberos realm of its own on this machine, as an ordinary user and without a file in /etc: krb5kdc as a child
// process on loopback ports, principals and keytabs by kadmin.local, tickets by kinit. Tests of Kerberos use it alone (ForTest), test/rig
// as a part of a secured cluster. It imports nothing of the product, so that it stays an independent check.
//
// Main flow: New looks for MIT's programs, Create writes krb5.conf and kdc.conf and makes the database when there is none, AddPrincipal
// and Keytab fill it (the KDC need not run for that), Start runs the KDC and waits until it answers, Kinit gets a ticket.
//
// Invariants:
//
//  1. One folder holds everything: krb5.conf, kdc.conf, the database, its log. Two realms in two folders with two ports do not touch each other.
//  2. All programs get the realm by KRB5_CONFIG and KRB5_KDC_PROFILE; the caller's own environment is not read for them.
//  3. Keys that a keytab already has stay valid when another keytab of the same principal is written.
package kdc
