package featuregate_test

import (
	"fmt"
	"time"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

// A policy, asked about one pod before and after a stage begins.
func ExampleDecider_Decide() {
	policy, err := featuregate.Parse([]byte(`
apiVersion: podresize.dev/v1alpha1
kind: RolloutPolicy
regions:
  - name: eu-west-1
    inPlace: Observe
    stages:
      - {notBefore: 2026-03-02T08:00:00Z, inPlace: 25%}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	decider, err := featuregate.NewDecider(policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	facts := featuregate.Facts{Region: "eu-west-1", Namespace: "shop", UID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Path: resize.PathInPlace}
	for _, day := range []int{1, 2} {
		facts.Now = time.Date(2026, 3, day, 12, 0, 0, 0, time.UTC)
		d := decider.Decide(facts)
		fmt.Printf("%s: %s\n", d.Mode, d.Message())
	}
	// Output:
	// Observe: region "eu-west-1": regions[0].inPlace is Observe
	// Off: region "eu-west-1": regions[0].stages[0].inPlace is 25%, the pod's share is 68.64%
}
