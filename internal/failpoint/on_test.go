//go:build failpoints

package failpoint

import "testing"

// go test -tags failpoints ./internal/failpoint
func TestArmedPointStrikesOnceAtItsHit(t *testing.T) {
	dir := t.TempDir()
	a, err := NewArmoury(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := hit(dir, "a/b"); err != nil {
		t.Fatalf("an unarmed point: %v", err)
	}
	if err := a.Arm("a/b", Action{Kind: Fail, Hit: 3}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := hit(dir, "a/b"); (err != nil) != (i == 2) {
			t.Errorf("hit %d: %v", i+1, err)
		}
		if err := hit(dir, "a/c"); err != nil {
			t.Errorf("another point: %v", err)
		}
	}
	if pid, ok := a.Fired("a/b"); !ok || pid == 0 {
		t.Errorf("Fired = %d, %v", pid, ok)
	}
	if got, err := a.Reached(); err != nil || len(got) != 2 {
		t.Errorf("Reached = %v, %v", got, err)
	}
	if err := a.Arm("a/c", Action{Kind: Fail, Hit: 1}); err != nil {
		t.Fatal(err)
	}
	if err := a.Disarm("a/c"); err != nil {
		t.Fatal(err)
	}
	if err := hit(dir, "a/c"); err != nil {
		t.Errorf("a disarmed point: %v", err)
	}
}
