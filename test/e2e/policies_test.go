//go:build e2e

package e2e_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// documentedRules are those in docs/security.md by which a policy sees resizes.
func documentedRules(t *testing.T) []admissionregistrationv1.NamedRuleWithOperations {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	_, block, found := strings.Cut(string(text), "```yaml\n  resourceRules:")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("docs/security.md has no resourceRules")
	}
	var rules struct {
		ResourceRules []admissionregistrationv1.NamedRuleWithOperations `json:"resourceRules"`
	}
	must(t, yaml.UnmarshalStrict([]byte("  resourceRules:"+block), &rules))
	return rules.ResourceRules
}

// testPoliciesSee is case-26: a policy that has the rules of docs/security.md sees resizes by either path.
func (e *env) testPoliciesSee(t *testing.T) {
	const name, words = "policed", "the policy has seen it"
	fail, forbidden := admissionregistrationv1.Fail, metav1.StatusReasonForbidden
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: documentedRules(t)},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "(has(object.spec.podName) ? object.spec.podName : object.metadata.name) != '" + name + "'", Message: words, Reason: &forbidden,
		}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	p := e.run(t, pod(name, container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	api := e.Client().AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	must(t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := api.ValidatingAdmissionPolicies().Delete(withoutCancel(t), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := api.ValidatingAdmissionPolicyBindings().Delete(withoutCancel(t), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	create := attempt{verb: "create", group: podresizeAPI, namespace: namespace, resource: "criresizes", body: strings.Replace(criResizeOf("policed", "n1"), "nobody", name, 1), refused: words}
	caller := e.as(t, resizerUser, resizers)
	eventually(t, "the policy sees a CRIResize", func() error { return create.check(create.by(t, caller)) })
	was, r := e.read(t, p), e.newResizer(t)
	eventually(t, "the policy sees a resize", func() error {
		res, err := r.Resize(t.Context(), e.latest(t, p), want{"app": {"200m/400m", ""}}.resources())
		said := res.Message
		if err != nil { // of a dry run, whose denial proves nothing
			said = err.Error()
		}
		if !strings.Contains(said, words) {
			return errors.New(said)
		}
		return nil
	})
	equal(t, "the kernel", e.read(t, p), was)
}

// testForeignNamespace: who may write CRIResizes in one namespace has no say about the pods of another, whatever is in the CRIResize.
func (e *env) testForeignNamespace(t *testing.T) {
	p := e.run(t, tripled("of-another-namespace"))
	object := &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(p.UID), Labels: map[string]string{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(p.Spec.NodeName)}},
		Spec:       *e.tripledSpec(t, p),
	}
	for i := range object.Spec.Containers {
		down := tripledDown["a"].requirements()
		object.Spec.Containers[i].Wanted = v1alpha1.Requirements{Requests: down.Requests, Limits: down.Limits}
	}
	must(t, e.objects.Create(t.Context(), object))
	t.Cleanup(func() {
		if err := e.objects.Delete(withoutCancel(t), object); err != nil {
			t.Error(err)
		}
	})
	e.says(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: p.UID}}, v1alpha1.ReasonPodNotFound)
	equal(t, "the kernel", e.read(t, p), tripledStart)
}
