package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// TestNoReclaim: memory in use stands in the way of a lower limit, and the kernel is only asked to reclaim it if that is wanted.
func TestNoReclaim(t *testing.T) {
	const mib = 1 << 20
	for name, no := range map[string]bool{"reclaims": false, "reclaims nothing": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, true, asking("cpu=2 memory=200Mi", "cpu=100m memory=128Mi"))
			b.agent.opts.NoReclaim = no
			file := filepath.Join(podPath, "c-app", "memory.reclaim")
			b.put(t, file, "")
			b.uses(t, podPath+"/c-app", 195*mib)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			b.says(t, v1alpha1.ReasonMemoryInUse, `container "app"`)
			written, err := os.ReadFile(filepath.Join(b.root, file))
			if err != nil || (len(written) == 0) != no {
				t.Errorf("asked to reclaim %q, %v", written, err)
			}
		})
	}
}
